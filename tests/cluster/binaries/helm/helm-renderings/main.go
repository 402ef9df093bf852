// Program helm-renderings is `helm template` for many sets of values, in one process: helm's start takes ten times as long
// as a rendering.
//
//	helm-renderings RELEASE CHART NAMESPACE < LINES
//
// Each line of standard input is JSON, {"name": ..., "values": {...}}; each line of the answer {"name": ..., "text": ...},
// or {"name": ..., "error": ...}. It installs with helm's own library as a dry run, as `helm template` does, and the text is
// what that prints; tests/chart compares some of them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
)

type question struct {
	Name   string         `json:"name"`
	Values map[string]any `json:"values"`
}

type answer struct {
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: helm-renderings RELEASE CHART NAMESPACE < LINES")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "helm-renderings:", err)
		os.Exit(1)
	}
}

func run(name, chart, namespace string) error {
	lines, out := json.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(out)
	for lines.More() {
		var asked question
		if err := lines.Decode(&asked); err != nil {
			return err
		}
		made := answer{Name: asked.Name}
		if text, err := render(name, chart, namespace, asked.Values); err != nil {
			made.Error = err.Error()
		} else {
			made.Text = text
		}
		if err := answers.Encode(made); err != nil {
			return err
		}
	}
	return out.Flush()
}

func render(name, chart, namespace string, values map[string]any) (string, error) {
	// Loaded anew each time: values disable parts of a chart for good.
	loaded, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName, install.Namespace, install.Replace = name, namespace, true
	made, err := install.Run(loaded, values)
	if err != nil {
		return "", err
	}
	rendered, ok := made.(*release.Release)
	if !ok {
		return "", fmt.Errorf("a release of type %T", made)
	}
	var text strings.Builder
	fmt.Fprintln(&text, strings.TrimSpace(rendered.Manifest))
	for _, hook := range rendered.Hooks {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
	}
	return text.String(), nil
}
