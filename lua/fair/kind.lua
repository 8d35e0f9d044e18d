local KIND = 'fair'
