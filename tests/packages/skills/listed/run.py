from plain_module import VALUE
