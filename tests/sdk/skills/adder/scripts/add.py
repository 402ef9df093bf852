import sys

print(f"sum={sum(int(number) for number in sys.argv[1:])}")
