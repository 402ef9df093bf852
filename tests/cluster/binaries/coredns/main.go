// The name server of the test bed: CoreDNS with the plugins that Services and pods need, and no other.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func init() {
	// The order in which a query passes the plugins.
	dnsserver.Directives = []string{"reload", "health", "ready", "errors", "cache", "kubernetes"}
}

func main() { coremain.Run() }
