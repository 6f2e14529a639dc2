module github.com/rota-dev/rota/web

go 1.26.0

toolchain go1.26.8

require github.com/rota-dev/rota v0.0.0

require github.com/robfig/cron/v3 v3.0.1 // indirect

replace github.com/rota-dev/rota => ../
