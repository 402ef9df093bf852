// Portkey's gateway listens on all interfaces and has no setting for it; this is loaded before it.
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port, host: "127.0.0.1" }, rest.find((one) => typeof one === "function"));
};
