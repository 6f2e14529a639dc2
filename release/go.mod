// The programs behind the scripts of releases. They have a module of their own, so that nobody who imports the library has their
// dependencies in the module graph.
module rota/release

go 1.26.4

require (
	github.com/stretchr/testify v1.12.1
	golang.org/x/mod v0.43.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
