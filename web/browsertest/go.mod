// Tests of the console in a browser. They have a module of their own, so that the driver of the browser does not come
// into the module graph of those who mount the console.
module github.com/rota-dev/rota/web/browsertest

go 1.26.0

toolchain go1.26.8

replace github.com/rota-dev/rota => ../../

replace github.com/rota-dev/rota/web => ../

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/rota-dev/rota v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
