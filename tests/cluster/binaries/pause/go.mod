module knack.dev/bed/pause

go 1.26
