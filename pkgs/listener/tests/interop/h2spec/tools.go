//go:build tools

// Package h2spec pins the version of h2spec that the tests run, and of everything it needs; all of it builds with
// the Go of Debian 12.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
