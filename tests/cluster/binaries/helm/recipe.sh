minutes=1
flags=(-ldflags "-s -w" tool ./helm-renderings)
