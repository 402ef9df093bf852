minutes=2
flags=(-ldflags "-s -w" tool)
