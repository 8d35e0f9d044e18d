local KIND = 'read_write'
