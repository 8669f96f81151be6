// Data for the pages.
import { request } from 'node:http';

import { until } from './server.mjs';

// What pages show, with markup in every text that takes it.
export async function seed(server) {
  const markup = '<script>alert(1)</script>"\'<b>';
  await server.post('/api/v1/teams', { name: 'web', description: markup });
  await server.post('/api/v1/owners', { name: 'ada', team: 'web' });
  for (let index = 1; index <= 5; index += 1) await server.bulla('cert', 'create', `shop${index}.example.net`, '--owner', 'ada');
  await server.post('/api/v1/authorities', { name: 'web-tls', subject: 'CN=Web <b>TLS</b>', parent: 'root' });
  await server.post('/api/v1/profiles', {
    name: 'web', description: markup, ca: 'web-tls', names: { dns_allowed: ['.example.net'] },
    validity: { default_seconds: 2592000 }, extended_key_usage: ['serverAuth'],
  });
  await server.post('/api/v1/policies', {
    name: 'production',
    policy: {
      description: markup, applies_to: { all: true }, enforcement: 'advisory', renewal: { renew_before: { days: 14 } },
      rules: [{ rule: 'required_environment' }, { rule: 'max_lifetime', seconds: 86400, severity: 'critical' }],
    },
  });
  await server.post('/api/v1/issuers', {
    name: 'elsewhere', config: { type: 'acme', directory: 'https://localhost:1/directory', terms_agreed: true },
  });
  await server.post('/api/v1/acme/external-keys', { label: markup, reusable: true, names: ['apps.example.net'] });
  await server.post('/api/v1/acme/limit-overrides', { kind: 'new_accounts', subject: '10.0.0.0/8', allowed: 9, seconds: 3600, note: markup });
  await server.post('/api/v1/alert-channels', {
    name: 'hook', config: { type: 'webhook', url: 'https://hooks.example.net/x', secret: '0123456789abcdef' },
  });
  await server.post('/api/v1/alert-rules', { name: 'all', rule: { when: { kinds: ['certificate'] }, channels: ['hook'] } });
  await server.post('/api/v1/agent-groups', { name: 'web', selector: { env: 'prod' }, description: markup });
  await server.post('/api/v1/ownership-rules', { name: 'shop', when: { host: '*.example.net' }, assign: { team: 'web' } });
  await server.post('/api/v1/ct/domains', { name: 'example.net', enabled: false });
  await server.post('/api/v1/users', { name: 'bob', subject: 'bob', issuer: 'https://login.example.net', grants: [] });
  await server.post('/api/v1/client-certificates', { name: 'deployer', match: `sha256:${'ab'.repeat(32)}`, grants: [{ role: 'viewer' }] });
}

// A request that the proxy holds while the pages are looked at, and one that it denies.
export async function sendThroughProxy(server) {
  const send = (path) => {
    const sent = request({ host: '127.0.0.1', port: server.proxy, method: 'POST', path, headers: { Host: new URL(path).host } });
    sent.on('error', () => {});
    sent.on('response', (response) => response.resume());
    sent.end('{}');
  };
  send('http://held.example.net/orders/7?token=hidden');
  send('http://denied.example.net/x?token=hidden');
  const items = async (list) => JSON.parse(await server.bulla('api', `/api/v1/proxy/${list}`)).items;
  await until('the requests of the proxy', async () =>
    (await items('held')).length && (await items('requests')).some(({ host }) => host === 'denied.example.net'));
}

// Two scans of the server itself, so that there is something to compare.
export async function scanTwice(server) {
  const watch = await server.post('/api/v1/watches', { name: 'own', targets: [new URL(server.url).host], interval_s: 86400 });
  const lastScan = async () => JSON.parse(await server.bulla('api', `/api/v1/watches/${watch.id}`)).last_run?.scan;
  let before;
  for (let count = 1; count <= 2; count += 1) {
    if (count > 1) await server.bulla('api', '-X', 'POST', `/api/v1/watches/${watch.id}/run`);
    before = await until('the scan of the watch', async () => {
      const last = await lastScan();
      return last === before ? undefined : last;
    });
  }
}
