module dramaturg

go 1.19
