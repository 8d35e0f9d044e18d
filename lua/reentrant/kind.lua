local kind = 'reentrant'
