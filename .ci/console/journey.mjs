// The life of one certificate, by mouse and keyboard: a watch finds it, a webhook gets the alert, a person claims it for an owner,
// renews it over ACME, and deploys it to nginx, where it is verified; its key moves to the key service; a client calls through the
// proxy with a credential that is rotated; the audit log has every step.
//
// Two steps are commands, because a browser must not do them: the policy of the agent's host, and the sealing of a private key.
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { connect } from 'node:tls';

import { checked, picture, problem } from './checks.mjs';
import { freePort, run, until } from './server.mjs';

const NAMES = ['shop.example', 'localhost'];
const CREDENTIAL = '/shop/api';
const CLICK_MILLISECONDS = 180_000;
const CALLS = 5;

// A name server that has 127.0.0.1 for every name: the CA validates names with it.
async function startNameServer() {
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => {
    let end = 12;
    while (query[end]) end += query[end] + 1;
    const question = query.subarray(12, end + 5);
    const isAddress = question.readUInt16BE(question.length - 4) === 1;
    const head = Buffer.from(query.subarray(0, 12));
    head.writeUInt16BE(0x8580, 2);
    [1, Number(isAddress), 0, 0].forEach((count, index) => head.writeUInt16BE(count, 4 + 2 * index));
    const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    socket.send(Buffer.concat(isAddress ? [head, question, answer] : [head, question]), from.port, from.address);
  });
  await new Promise((done) => socket.bind(0, '127.0.0.1', done));
  return socket;
}

async function startHttp(handle) {
  const server = createServer(handle);
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return server;
}

// Makes a self-signed certificate that expires in two days, after 82 days: that is soon in relation to its lifetime.
async function makeRogue(folder, tls) {
  const [key, request, configuration] = [join(tls, 'key.pem'), join(folder, 'request.pem'), join(folder, 'openssl.cnf')];
  const date = (days) => `${new Date(Date.now() + days * 86_400_000).toISOString().replace(/[-:T]|\..*/g, '')}Z`;
  writeFileSync(configuration, `[ca]
default_ca = rogue
[rogue]
database = ${join(folder, 'index.txt')}
new_certs_dir = ${folder}
rand_serial = yes
default_md = sha256
copy_extensions = copy
policy = names
[names]
commonName = supplied
[req]
distinguished_name = names
`);
  writeFileSync(join(folder, 'index.txt'), '');
  await openssl('req', '-new', '-config', configuration, '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', `/CN=${NAMES[0]}`,
    '-addext', `subjectAltName=${NAMES.map((name) => `DNS:${name}`).join(',')}`, '-keyout', key, '-out', request);
  await openssl('ca', '-batch', '-selfsign', '-notext', '-config', configuration, '-keyfile', key, '-in', request, '-out', join(tls, 'full.pem'),
    '-startdate', date(-80), '-enddate', date(2));
}

async function openssl(...line) {
  const { ok, stderr } = await run('openssl', line);
  if (!ok) throw new Error(`openssl ${line[0]}: ${stderr}`);
}

// Starts nginx with a self-signed certificate that expires in two days.
async function startNginx(folder) {
  const [tls, port] = [join(folder, 'tls'), await freePort()];
  const at = (name) => join(folder, name);
  mkdirSync(tls, { recursive: true });
  await makeRogue(folder, tls);
  const places = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${at(kind)};`).join('\n');
  writeFileSync(at('nginx.conf'), `daemon off; pid ${at('pid')}; error_log ${at('error.log')}; events {} http { access_log off; ${places}
server { listen 127.0.0.1:${port} ssl; ssl_certificate ${join(tls, 'full.pem')}; ssl_certificate_key ${join(tls, 'key.pem')};
location / { return 200 here; } } }
`);
  const child = spawn('nginx', ['-p', `${folder}/`, '-c', at('nginx.conf')], { stdio: 'ignore' });
  return { port, folder, tls, configuration: at('nginx.conf'), stop: () => child.kill('SIGTERM') };
}

// Returns the SHA-256 of the certificate that a server presents; undefined if it presents none.
function presented(port) {
  return new Promise((done) => {
    const socket = connect({ host: '127.0.0.1', port, servername: NAMES[0], rejectUnauthorized: false }, () => {
      done(socket.getPeerX509Certificate()?.fingerprint256.replaceAll(':', '').toLowerCase());
      socket.destroy();
    });
    socket.on('error', () => done(undefined));
  });
}

// Starts the servers beside Bulla. `settings` and `rules` are the lines of Bulla's configuration for them.
export async function prepare(home) {
  const nginx = await startNginx(join(home, 'nginx'));
  const names = await startNameServer();
  const messages = [];
  const webhook = await startHttp((request, response) => {
    let body = '';
    request.on('data', (chunk) => { body += chunk; });
    request.on('end', () => {
      messages.push(JSON.parse(body));
      response.end('ok');
    });
  });
  // The origin behind the terminator stores the credentials it gets, and rejects calls without one.
  const bearers = [];
  const origin = await startHttp((request, response) => {
    const bearer = request.headers.authorization?.replace('Bearer ', '');
    if (bearer) bearers.push(bearer);
    else response.statusCode = 401;
    response.end(bearer ? 'ok' : '');
  });
  const [edge, http01] = [await freePort(), await freePort()];
  return {
    home, nginx, edge, http01, messages, bearers, webhook: webhook.address().port,
    stop() {
      nginx.stop();
      names.close();
      for (const server of [webhook, origin]) {
        server.closeAllConnections();
        server.close();
      }
    },
    settings: `[acme.validation]
name_servers = ["127.0.0.1:${names.address().port}"]
http_port = ${http01}
allow_networks = ["127.0.0.0/8"]
[edge]
listen = "127.0.0.1:${edge}"
metrics_listen = ""
upstream = "127.0.0.1:${origin.address().port}"
mode = "http"
inventory = true
reload_s = 1
`,
    rules: `[[proxy.policy.rules]]
name = "shop"
host = ["localhost"]
port = [${edge}]
[[proxy.rules]]
host = ["localhost"]
path = ["/api/*"]
inject = { credential = "${CREDENTIAL}", port = [${edge}] }
`,
  };
}

// A person at the browser: clicks, types, and reads what the page shows.
class Person {
  constructor(page, origin) {
    this.page = page;
    this.origin = origin;
    this.main = page.locator('main');
    page.setDefaultTimeout(CLICK_MILLISECONDS);
  }

  // Opens a page of the menu.
  async menu(name, title = name) {
    await this.page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true }).click();
    await this.reads(title);
  }

  // Waits for the page with this heading.
  reads(title) {
    return this.page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor();
  }

  // Follows a link of the page.
  follow(name) {
    return this.main.getByRole('link', { name, exact: true }).first().click();
  }

  press(name) {
    return this.main.getByRole('button', { name, exact: true }).first().click();
  }

  // Returns the field with this label.
  field(label) {
    return this.main.locator(`xpath=.//label[normalize-space(text()[1])="${label}"]//*[self::input or self::textarea or self::select]`).first();
  }

  async type(label, text) {
    await this.field(label).click();
    await this.page.keyboard.press('ControlOrMeta+A');
    await this.page.keyboard.insertText(text);
  }

  choose(label, option) {
    return this.field(label).selectOption({ label: option });
  }

  // Waits for the message after an action.
  told(message) {
    return this.page.getByRole('status').filter({ hasText: message }).waitFor();
  }

  // Waits for a row of a table with all of these texts.
  row(...texts) {
    const rows = this.main.getByRole('row');
    return texts.reduce((found, hasText) => found.filter({ hasText }), rows).first();
  }

  sees(...texts) {
    return this.row(...texts).waitFor();
  }

  // Loads the page again until it has a row with all of these texts.
  async seesAtLast(...texts) {
    await until(`${new URL(this.page.url()).pathname} shows ${texts.join(', ')}`, async () => {
      if (await this.row(...texts).count()) return true;
      await this.page.reload({ waitUntil: 'load' });
      return false;
    });
  }

  // Returns the value of a term in a list of details.
  fact(term) {
    const value = this.main.locator('dt').filter({ hasText: new RegExp(`^${term}$`) }).first().locator('xpath=following-sibling::dd[1]');
    return value.innerText();
  }

  async factAtLast(term, wanted) {
    await until(`${term} is ${wanted}`, async () => {
      const has = await this.main.locator('dt').filter({ hasText: new RegExp(`^${term}$`) }).count();
      if (has && (await this.fact(term)).includes(wanted)) return true;
      await this.page.reload({ waitUntil: 'load' });
      return false;
    });
  }
}

// Runs a step and prints its duration.
async function step(name, work) {
  const began = Date.now();
  await work();
  console.log(`journey: ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
}

export async function journey(server, world, page) {
  const person = new Person(page, server.url);
  const context = { server, world, page, person };
  try {
    await step('signed in with the one-time link', () => signIn(context));
    await step('prepared alerts, an owner and an issuer', () => prepareTeam(context));
    await step('a watch found the certificate', () => watchShop(context));
    await step('claimed the certificate for an owner', () => claim(context));
    await step('renewed over ACME, deployed and verified', () => renewAndDeploy(context));
    await step('the alert is resolved', () => seeResolved(context));
    await step('its key is in the key service', () => moveKey(context));
    await step('a call with an injected credential', () => callWithCredential(context));
    await step('rotated the credential', () => rotate(context));
    await step('the audit log has every step', () => audit(context));
  } catch (error) {
    problem(new URL(page.url()).pathname, `the journey ends here: ${error.message}`);
    await picture(page, 'journey-failed').catch(() => {});
  }
}

async function signIn({ server, page, person }) {
  const link = (await server.bulla('console')).match(/https:\S+/)[0];
  // The page sends its form by itself, which may interrupt the loading that is waited for here.
  await page.goto(link).catch(() => {});
  await page.waitForURL(`${server.url}/console`);
  await person.reads('Overview');
  await page.getByRole('heading', { name: 'First steps' }).waitFor();
  await checked(page, '/console without certificates');
  await picture(page, 'first-steps');
}

// A channel and a rule for alerts, an owner, and the ACME directory of this server as an issuer.
async function prepareTeam({ server, world, person }) {
  await person.menu('Alerts');
  await person.follow('Channels');
  await person.follow('New channel');
  await person.follow('Webhook');
  await fill(person, { Name: 'team', URL: `http://127.0.0.1:${world.webhook}/`, Secret: '0123456789abcdef' });
  await person.told('Created.');
  await person.menu('Alerts');
  await person.follow('Rules');
  await person.follow('New rule');
  await person.choose('Minimum severity', 'info');
  await fill(person, { Name: 'expiry', Channels: 'team', 'Only these kinds': 'certificate' });
  await person.told('Created.');
  await person.menu('Settings');
  await person.follow('Owners');
  await person.type('Name', 'shop-team');
  await person.press('Add');
  await person.told('Created.');
  await person.menu('Issuers');
  await person.follow('New issuer');
  await person.follow('JSON');
  const roots = readFileSync(join(server.data, 'root.pem'), 'utf8');
  await document(person, {
    name: 'acme',
    config: {
      type: 'acme', directory: `${server.url}/acme/directory`, terms_agreed: true, challenges: ['http-01'],
      listen: { http01: `127.0.0.1:${world.http01}` }, http: { roots },
    },
  });
  await person.told('Created.');
}

async function fill(person, fields) {
  for (const [label, text] of Object.entries(fields)) await person.type(label, text);
  await person.press('Create');
}

async function document(person, text) {
  await person.type('Document (JSON)', JSON.stringify(text));
  await person.press('Create');
}

async function watchShop({ world, page, person }) {
  await until('nginx', () => presented(world.nginx.port));
  await person.menu('Watches');
  await person.follow('New watch');
  await person.type('Name', 'shop');
  await person.type('Targets, one per line', `127.0.0.1:${world.nginx.port}`);
  await person.press('Add the watch');
  await until('the alert at the webhook', () => world.messages.some((one) => one.kind === 'certificate.expiring' && one.reason === 'raised'));
  await person.page.getByRole('link', { name: 'Overview' }).click();
  await person.reads('Overview');
  await page.locator('#needs').getByRole('link', { name: /open alert/ }).click();
  await person.reads('Alerts');
  await person.sees('certificate.expiring', NAMES[0], 'critical', 'open');
  await picture(page, 'journey-alerts');
}

async function claim({ world, page, person }) {
  await person.row('certificate.expiring', NAMES[0]).getByRole('link').first().click();
  await person.sees('team', 'sent');
  await checked(page, '/console/alerts/{} of the journey');
  await person.follow('a certificate that a scan found');
  await person.reads('Search');
  await picture(page, 'journey-search');
  await person.row('endpoint', 'fingerprint (exact)').getByRole('link').first().click();
  await person.reads('Endpoints');
  await page.getByRole('checkbox', { name: `Choose 127.0.0.1:${world.nginx.port}`, exact: true }).check();
  await checked(page, '/console/endpoints of the journey');
  await picture(page, 'journey-found');
  await person.press('Bring the chosen ones under management');
  await person.reads('Bring under management');
  await person.choose('Issuer of the next version', 'acme');
  await person.choose('Owner', 'shop-team');
  // The person renews it, not the server.
  await person.main.getByRole('checkbox', { name: 'Renew before it expires' }).uncheck();
  await checked(page, '/console/endpoints/claim of the journey');
  await picture(page, 'journey-claim');
  await person.press('Bring under management');
  await person.told('Claimed');
  await person.sees(NAMES[0], 'shop-team', 'acme');
}

async function openCertificate(person) {
  await person.menu('Certificates');
  await person.type('Name contains', NAMES[0]);
  await person.press('Filter');
  await person.follow(NAMES[0]);
  await person.reads(`Certificate ${NAMES[0]}`);
}

async function renewAndDeploy({ server, world, page, person }) {
  const { nginx } = world;
  const rogue = await presented(nginx.port);
  await person.menu('Targets');
  await person.follow('New target');
  await person.type('Name', 'shop nginx');
  const nginxDoes = (...line) => ['nginx', ...line, '-c', nginx.configuration];
  await person.type('Configuration', JSON.stringify({
    type: 'nginx', fullchain: { path: join(nginx.tls, 'full.pem') }, key: { path: join(nginx.tls, 'key.pem') },
    validate: nginxDoes('-t'), reload: nginxDoes('-s', 'reload'), verify: { port: nginx.port, server_name: NAMES[0] },
  }));
  await person.press('Add the target');
  await person.told('Created.');
  // The host's own policy decides what its agent may write and run. Root changes it there.
  const check = ['agent', 'policy', 'check', '--policy', server.policy, '--state', join(server.data, 'agent')];
  appendFileSync(server.policy, await server.local(...check, '--lines'));

  await openCertificate(person);
  await person.follow('Change targets');
  await person.choose('Add a target', 'shop nginx');
  await checked(page, '/console/certificates/{}/targets of the journey');
  await picture(page, 'journey-targets');
  await person.press('Save');
  await person.told('Saved.');
  await person.follow('Renew');
  await page.getByText('The new version is deployed to its 1 target.').waitFor();
  await person.press('Renew now');
  await person.told('Renewal started.');
  await person.factAtLast('Served', 'newest');
  await person.factAtLast('State', 'active');
  await person.sees('shop nginx', 'deployed');
  const renewed = await presented(nginx.port);
  if (renewed === rogue || !(await person.fact('SHA-256 fingerprint')).includes(renewed)) {
    problem('/console/certificates/{}', 'nginx does not serve the renewed certificate');
  }
  await picture(page, 'journey-certificate');

  // The next scan sees the renewed certificate at the endpoint.
  await person.menu('Watches');
  await person.follow('shop');
  await person.press('Scan now');
  await person.told('Scan started.');
  await openCertificate(person);
  await person.seesAtLast(`127.0.0.1:${nginx.port}`, 'current');
}

async function seeResolved({ person }) {
  await person.menu('Alerts');
  await person.choose('State', 'resolved');
  await person.press('Filter');
  await person.seesAtLast('certificate.expiring', NAMES[0], 'resolved');
}

async function moveKey({ server, world, page, person }) {
  await person.menu('Keys');
  await person.follow('Try a policy');
  await person.type('Formula', 'site: local');
  await person.press('Show which nodes satisfy it');
  await person.type('Name', 'here');
  await person.press('Create');
  await person.told('Created.');
  // Private keys do not pass through a browser.
  const [whole, key] = [join(world.home, 'shop.pem'), join(world.home, 'shop.key')];
  await server.bulla('cert', 'export', NAMES[0], '--key', '--file', whole);
  await openssl('pkey', '-in', whole, '-out', key);
  await server.bulla('key', 'seal', '--policy', 'here', '--key', key);
  for (const file of [whole, key]) rmSync(file);
  const renewed = await presented(world.nginx.port);
  await until('the terminator', async () => (await presented(world.edge)) === renewed);

  await person.menu('Keys');
  await picture(page, 'journey-keys');
  await person.follow('All sealed keys');
  await person.reads('Sealed keys');
  await person.sees('here');
  await checked(page, '/console/sealed-keys of the journey');
  await person.follow('here');
  await checked(page, '/console/key-policies/{} of the journey');
  await picture(page, 'journey-key-policy');
  await person.menu('Keys');
  await person.follow('Sites');
  await person.follow('local');
  await person.reads('Site local');
  await person.sees('local', 'present');
  await checked(page, '/console/key-sites/{} of the journey');
  await picture(page, 'journey-key-site');
}

// Calls the shop through the proxy, as a client without a credential. Returns the credential that the origin got.
async function call({ server, world }) {
  const before = world.bearers.length;
  const { stdout, stderr } = await run('curl', ['-sS', '--max-time', '60', '--noproxy', '', '--proxy', `http://127.0.0.1:${server.proxy}`,
    '--cacert', join(server.data, 'proxy-ca.pem'), `https://localhost:${world.edge}/api/stock`]);
  if (stdout !== 'ok') throw new Error(`a call through the proxy got ${JSON.stringify(stdout || stderr)}`);
  return world.bearers[before];
}

async function callWithCredential(context) {
  const { world, page, person } = context;
  await person.menu('Credentials');
  await person.follow('Generate');
  await person.choose('Type', 'password');
  await person.press('Continue');
  await person.type('Name', CREDENTIAL);
  await person.press('Generate');
  await person.told('Created.');
  await person.reads(CREDENTIAL);
  context.first = await call(context);
  if (!context.first) problem('/console/proxy/requests', 'the proxy injected no credential');
  await person.menu('Requests', 'Proxy requests');
  await person.seesAtLast(`GET localhost:${world.edge}/api/stock`, 'allow', 'shop', '200');
  await picture(page, 'journey-requests');
  await person.follow(`GET localhost:${world.edge}/api/stock`);
  await person.reads('Proxy request');
  if (!(await person.fact('Credentials')).includes(CREDENTIAL)) problem('/console/proxy/requests/{}', 'does not name the credential');
  await checked(page, '/console/proxy/requests/{} of the journey');
  await picture(page, 'journey-request');
  await replay(context);
  await person.menu('Traffic');
  await person.sees('Credentials injected', '2');
  await person.seesAtLast(CREDENTIAL);
  await checked(page, '/console/traffic of the journey');
  await picture(page, 'journey-traffic');
}

// Sends the request on the page again. The proxy injects the credential anew.
async function replay({ world, page, person, first }) {
  await person.follow('Replay');
  await person.reads('Replay this request?');
  if (!(await person.fact('Credentials')).includes(CREDENTIAL)) problem('/console/proxy/requests/{}/replay', 'does not name the credential');
  if ((await page.content()).includes(first)) problem('/console/proxy/requests/{}/replay', 'shows the credential');
  await checked(page, '/console/proxy/requests/{}/replay of the journey');
  await picture(page, 'journey-replay');
  const before = world.bearers.length;
  await person.press('Send it again');
  await person.told('Sent again.');
  await person.reads('Proxy request');
  await person.factAtLast('Status', '200');
  if (world.bearers.length !== before + 1 || world.bearers[before] !== first) problem('/console/proxy/requests/{}/replay', 'does not inject the credential');
  await picture(page, 'journey-replayed');
  await person.menu('Proxy');
  await person.seesAtLast('127.0.0.1', '2');
  await picture(page, 'journey-proxy');
}

async function rotate(context) {
  const { page, person, world, first } = context;
  await person.menu('Traffic');
  await person.follow(CREDENTIAL);
  await person.reads(CREDENTIAL);
  await person.follow('Regenerate');
  await person.reads(`Regenerate ${CREDENTIAL}`);
  await person.press('Regenerate');
  await person.told('Rotated.');
  await person.sees('2', 'current');
  await person.sees('1', 'older');
  await picture(page, 'journey-credential');
  await until('a call with the new credential', async () => (await call(context)) !== first);
  for (let count = 0; count < CALLS; count += 1) {
    if ((await call(context)) === first) problem('/console/credentials/one', 'the proxy injects the former credential again');
  }
  await person.follow('Reads in the audit log');
  await person.reads('Audit');
  await person.seesAtLast('credential.read', CREDENTIAL);
  if ((await page.content()).includes(first) || world.bearers.some((bearer) => !bearer)) problem('/console/audit', 'shows the credential');
}

async function audit({ page, person }) {
  const actions = ['watch.create', 'certificate.claim', 'certificate.renew', 'certificate.issue', 'target.create'];
  for (const action of actions) {
    await person.menu('Audit');
    await person.type('Action', action);
    await person.press('Filter');
    await person.sees(action);
  }
  await person.menu('Audit');
  await picture(page, 'journey-audit');
  await person.follow('Verify, sealed segments, heads');
  await person.press('Verify all chains now');
  await page.getByText('all chains are intact').waitFor();
  await checked(page, '/console/audit/verify of the journey');
  await picture(page, 'journey-audit-verified');
}
