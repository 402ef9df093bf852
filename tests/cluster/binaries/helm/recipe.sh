minutes=3
flags=(-ldflags "-s -w" tool ./helm-renderings)
