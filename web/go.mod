module github.com/rota-dev/rota/web

go 1.26.0

toolchain go1.26.8

require (
	github.com/rota-dev/rota v0.0.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/rota-dev/rota => ../
