// The registry of images that tests push to and pull from: Distribution with the storage driver that they use, and no other.
// The drivers of clouds are most of what upstream's own program is compiled from.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
