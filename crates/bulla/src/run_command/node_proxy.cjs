// Loaded by Node before its program (NODE_OPTIONS). Node 22.21, 24.5 and later read the proxy variables themselves; for older ones this
// makes fetch, http and https connect through the proxy.
'use strict';
const [major, minor] = process.versions.node.split('.').map(Number);
const knows = major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);
const variable = process.env.HTTPS_PROXY || process.env.https_proxy;
if (!knows && variable) {
  const http = require('http');
  const https = require('https');
  const tls = require('tls');
  const proxy = new URL(variable);
  const headers = {};
  if (proxy.username) {
    const login = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
    headers['proxy-authorization'] = `Basic ${Buffer.from(login).toString('base64')}`;
  }
  const tunnel = (host, port, done) => {
    const name = `${host.includes(':') && host[0] !== '[' ? `[${host}]` : host}:${port}`;
    const request = http.request({
      agent: false,
      host: proxy.hostname,
      port: proxy.port,
      method: 'CONNECT',
      path: name,
      headers: { ...headers, host: name },
      createConnection: require('net').connect,
    });
    request.once('error', done);
    request.once('connect', (answer, socket) => {
      if (answer.statusCode === 200) return done(null, socket);
      socket.destroy();
      done(new Error(`the proxy answers CONNECT ${name} with ${answer.statusCode} ${answer.statusMessage}`));
    });
    request.end();
  };
  const secure = (options, host, done) => (error, socket) => {
    if (error) return done(error);
    const servername = options.servername || (require('net').isIP(host) ? undefined : host);
    const secured = tls.connect({ ...options, socket, servername });
    done(null, secured);
  };
  http.globalAgent.createConnection = (options, done) => {
    tunnel(options.host, options.port || 80, done);
  };
  https.globalAgent.createConnection = (options, done) => {
    tunnel(options.host, options.port || 443, secure(options, options.host, done));
  };
  // The first use of an interface of fetch makes the dispatcher of all requests.
  const dispatcher = Symbol.for('undici.globalDispatcher.1');
  if (typeof fetch === 'function' && typeof Response === 'function' && globalThis[dispatcher]) {
    const Agent = globalThis[dispatcher].constructor;
    globalThis[dispatcher] = new Agent({
      connect: (options, done) => {
        const port = options.port || (options.protocol === 'https:' ? 443 : 80);
        if (options.protocol !== 'https:') return tunnel(options.hostname, port, done);
        const secured = (error, socket) => {
          if (error) return done(error, null);
          socket.once('error', (failure) => done(failure, null));
          socket.once('secureConnect', () => done(null, socket));
        };
        tunnel(options.hostname, port, secure({ servername: options.servername }, options.hostname, secured));
      },
    });
  }
}
