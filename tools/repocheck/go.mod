module cofferdam.dev/tools/repocheck

go 1.26.0
