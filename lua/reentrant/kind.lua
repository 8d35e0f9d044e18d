local KIND = 'reentrant'
