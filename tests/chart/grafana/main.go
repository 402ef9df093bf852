// Reads a dashboard from stdin with the types that Grafana generates from its own schemas, and fails with what they do not know, do not
// find or do not allow: members of the dashboard, of its panels, and of the options of each kind of panel.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	var board dashboard.Dashboard
	// A list of errors, which may be empty.
	if err := board.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		fail(err)
	}
	if err := board.Validate(); err != nil && err.Error() != "" {
		fail(err)
	}
	fmt.Printf("%d panels\n", len(board.Panels))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
