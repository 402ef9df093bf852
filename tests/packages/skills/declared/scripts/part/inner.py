print("a module that prints while it is imported")
ONE = 1
