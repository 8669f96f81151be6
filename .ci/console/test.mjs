// The web console in a real browser: every page that links reach, in light and dark, on a wide and a narrow screen, with and
// without script.
//
//   BULLA=target/debug/bulla node test.mjs SCREENSHOTS
//
// starts `bulla up` in a temporary folder, seeds it, and signs in with a one-time link, a password, a security key and a passkey. For work on pages, in place of that:
//
//   CONSOLE=http://127.0.0.1:8000 [BELOW=/console/acme,/console/issuers] node test.mjs SCREENSHOTS
//
// looks at a console that runs and asks nobody to sign in (`cargo run -p web_console --example beside`), at all pages or at
// those below BELOW. CHROMIUM names the browser, /usr/bin/chromium-headless-shell unless given.
import { spawn, spawnSync } from 'node:child_process';
import { createWriteStream, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';

const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 375, height: 812 };
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
// So many pages end the crawl, and so many children of one path that look like words rather than identities.
const PAGES_MAX = 280;
const WORDS_MAX = 8;
const START_SECONDS = 180;

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const shots = process.argv[2];
if (!shots) {
  console.error('usage: node test.mjs SCREENSHOTS');
  process.exit(2);
}
mkdirSync(shots, { recursive: true });

const problems = new Set();
const problem = (path, text) => {
  const line = `${path}: ${text}`;
  if (!problems.has(line)) console.log(`PROBLEM ${line}`);
  problems.add(line);
};

// A server of its own.

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function startServer(home) {
  const program = resolve(process.env.BULLA ?? 'target/debug/bulla');
  // Other servers on this machine may have the default ports.
  const [api, credentials, open, nodes, proxy] =
    [await freePort(), await freePort(), await freePort(), await freePort(), await freePort()];
  mkdirSync(join(home, '.config/bulla'), { recursive: true });
  writeFileSync(join(home, '.config/bulla/bulla.toml'), `[keys]
metrics_listen = ""
[keys.node]
listen = "127.0.0.1:${nodes}"
[proxy]
listen = "127.0.0.1:${proxy}"
metrics_listen = ""
[[proxy.policy.rules]]
name = "orders <b>"
host = ["held.example.net"]
port = [80]
action = "hold"
hold_for_s = 3600
`);
  const env = { ...process.env, HOME: home, XDG_DATA_HOME: '', XDG_CONFIG_HOME: '', XDG_STATE_HOME: '' };
  for (const name of Object.keys(env)) if (name.startsWith('XDG_') || name.startsWith('BULLA_')) delete env[name];
  const listen = ['--listen', `127.0.0.1:${api}`, '--credential-listen', `127.0.0.1:${credentials}`, '--public-listen', `127.0.0.1:${open}`];
  const child = spawn(program, ['up', ...listen], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const log = createWriteStream(join(home, 'up.log'));
  child.stdout.pipe(log);
  child.stderr.pipe(log);
  const url = `https://localhost:${api}`;
  const data = join(home, '.local/share/bulla');
  const where = ['--server', url, '--token-file', join(data, 'admin.token'), '--server-ca', join(data, 'root.pem')];
  const commandWith = (input, ...line) => spawnSync(program, [...line, ...where], { env, encoding: 'utf8', input });
  const command = (...line) => commandWith('', ...line);
  const server = {
    url,
    proxy,
    async stop() {
      if (child.exitCode !== null) return;
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
    },
    log: () => readFileSync(join(home, 'up.log'), 'utf8'),
    bulla: (...line) => server.bullaWith('', ...line),
    bullaWith(input, ...line) {
      const done = commandWith(input, ...line);
      if (done.status !== 0) throw new Error(`bulla ${line.join(' ')}: ${done.stderr || done.stdout}`);
      return done.stdout;
    },
    post(path, body) {
      const done = spawnSync(program, ['api', '-X', 'POST', path, '--file', '-', ...where], {
        env, encoding: 'utf8', input: JSON.stringify(body),
      });
      if (done.status !== 0) throw new Error(`POST ${path}: ${done.stderr || done.stdout}`);
      return JSON.parse(done.stdout || 'null');
    },
  };
  const end = Date.now() + START_SECONDS * 1000;
  while (!existsSync(join(data, 'admin.token')) || command('cert', 'list').status !== 0) {
    if (child.exitCode !== null || Date.now() > end) throw new Error(`bulla up did not start:\n${server.log()}`);
    await pause(250);
  }
  return server;
}

// What pages show, with markup in every text that takes it.
function seed(server) {
  const markup = '<script>alert(1)</script>"\'<b>';
  server.post('/api/v1/teams', { name: 'web', description: markup });
  server.post('/api/v1/owners', { name: 'ada', team: 'web' });
  for (let index = 1; index <= 5; index += 1) server.bulla('cert', 'create', `shop${index}.example.net`, '--owner', 'ada');
  server.post('/api/v1/authorities', { name: 'web-tls', subject: 'CN=Web <b>TLS</b>', parent: 'root' });
  server.post('/api/v1/profiles', {
    name: 'web', description: markup, ca: 'web-tls', names: { dns_allowed: ['.example.net'] },
    validity: { default_seconds: 2592000 }, extended_key_usage: ['serverAuth'],
  });
  server.post('/api/v1/policies', {
    name: 'production',
    policy: {
      description: markup, applies_to: { all: true }, enforcement: 'advisory', renewal: { renew_before: { days: 14 } },
      rules: [{ rule: 'required_environment' }, { rule: 'max_lifetime', seconds: 86400, severity: 'critical' }],
    },
  });
  server.post('/api/v1/issuers', {
    name: 'elsewhere', config: { type: 'acme', directory: 'https://localhost:1/directory', terms_agreed: true },
  });
  server.post('/api/v1/acme/external-keys', { label: markup, reusable: true, names: ['apps.example.net'] });
  server.post('/api/v1/acme/limit-overrides', { kind: 'new_accounts', subject: '10.0.0.0/8', allowed: 9, seconds: 3600, note: markup });
  server.post('/api/v1/alert-channels', {
    name: 'hook', config: { type: 'webhook', url: 'https://hooks.example.net/x', secret: '0123456789abcdef' },
  });
  server.post('/api/v1/alert-rules', { name: 'all', rule: { when: { kinds: ['certificate'] }, channels: ['hook'] } });
  server.post('/api/v1/agent-groups', { name: 'web', selector: { env: 'prod' }, description: markup });
  server.post('/api/v1/ownership-rules', { name: 'shop', when: { host: '*.example.net' }, assign: { team: 'web' } });
  server.post('/api/v1/ct/domains', { name: 'example.net', enabled: false });
  server.post('/api/v1/users', { name: 'bob', subject: 'bob', issuer: 'https://login.example.net', grants: [] });
  server.post('/api/v1/client-certificates', { name: 'deployer', match: `sha256:${'ab'.repeat(32)}`, grants: [{ role: 'viewer' }] });
}

// A request that the proxy holds while the pages are looked at, and one that it denies.
async function sendThroughProxy(server) {
  const send = (path) => {
    const sent = request({ host: '127.0.0.1', port: server.proxy, method: 'POST', path, headers: { Host: new URL(path).host } });
    sent.on('error', () => {});
    sent.on('response', (response) => response.resume());
    sent.end('{}');
  };
  send('http://held.example.net/orders/7?token=hidden');
  send('http://denied.example.net/x?token=hidden');
  const items = (list) => JSON.parse(server.bulla('api', `/api/v1/proxy/${list}`)).items.length;
  const end = Date.now() + START_SECONDS * 1000;
  while (!items('held') || !items('requests')) {
    if (Date.now() > end) throw new Error('the proxy holds no request');
    await pause(250);
  }
}

// Two scans of the server itself, so that there is something to compare.
async function scanTwice(server) {
  const watch = server.post('/api/v1/watches', { name: 'own', targets: [new URL(server.url).host], interval_s: 86400 });
  const finished = () => JSON.parse(server.bulla('api', '/api/v1/scans')).items.filter(({ state }) => state === 'finished').length;
  const end = Date.now() + START_SECONDS * 1000;
  for (let scans = 1; scans <= 2; scans += 1) {
    if (scans > 1) server.bulla('api', '-X', 'POST', `/api/v1/watches/${watch.id}/run`);
    while (finished() < scans) {
      if (Date.now() > end) throw new Error('the watch does not finish two scans');
      await pause(250);
    }
  }
}

async function signIn(server, context) {
  const { code } = server.post('/api/v1/auth/links', {});
  const page = await context.newPage();
  watch(page);
  await page.goto(`${server.url}/console/sign-in`);
  await checked(page, '/console/sign-in');
  await page.close();
  // The page sends its form by itself, which may interrupt the loading that is waited for here.
  const link = await context.newPage();
  watch(link);
  await link.goto(`${server.url}/console/sign-in#code=${code}`).catch(() => {});
  await link.waitForURL(`${server.url}/console`);
  await link.close();
}

// What is wrong with a page.

function watch(page) {
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problem(new URL(page.url()).pathname, `console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problem(new URL(page.url()).pathname, `script: ${error.message}`));
}

const reportsViolations = () => document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`Content-Security-Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});

async function axe(page, path, how) {
  await page.evaluate(AXE);
  const found = await page.evaluate((rules) => globalThis.axe.run(document, { runOnly: rules }), RULES);
  for (const { id, help, nodes } of found.violations) {
    problem(path, `${how}: axe ${id}: ${help}: ${nodes.slice(0, 2).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  }
}

async function checked(page, path) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(scheme === 'light' ? WIDE : NARROW);
    await axe(page, path, scheme);
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wider > 0) problem(path, `${wider} px too wide for ${page.viewportSize().width} px`);
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}

// A path without what only names one object: /console/issued/{}/revoke?key.
const children = new Map();
function template(url) {
  const parts = url.pathname.split('/').slice(1);
  const kept = parts.map((part, depth) => {
    if (!/^[a-z]+(-[a-z]+)*$/.test(part)) return '{}';
    const parent = parts.slice(0, depth).join('/');
    const known = children.get(parent) ?? new Set();
    children.set(parent, known);
    if (known.has(part) || depth < 2) known.add(part);
    else if (known.size < WORDS_MAX) known.add(part);
    else return '{}';
    return part;
  });
  const query = [...url.searchParams.keys()].filter((name) => !['cursor', 'done'].includes(name)).sort();
  // Filters are combined freely: two or more of them are one kind.
  const shown = query.length > 1 ? '?{}' : query.length ? `?${query[0]}` : '';
  return `/${kept.join('/')}${shown}`;
}

const below = (process.env.BELOW ?? '/console').split(',');
function isPage(url, origin) {
  const path = url.pathname;
  const inside = below.some((begin) => path === begin || path.startsWith(`${begin}/`));
  const file = /\.(pem|csv|json|txt|har|der|crl)$/.test(path) || /\/(assets|export|events)(\/|$)/.test(path);
  return url.origin === origin && inside && !file && path !== '/console/sign-out';
}

const isSignIn = (address) => new URL(address).pathname === '/console/sign-in';

async function crawl(page, origin) {
  const queue = below.map((path) => ({ path, from: 'the start' }));
  const seen = new Set(below.map((path) => template(new URL(path, origin))));
  const visited = [];
  while (queue.length && visited.length < PAGES_MAX) {
    const { path, from } = queue.shift();
    const response = await page.goto(origin + path, { waitUntil: 'load' }).catch((error) => {
      if (!/Download is starting/.test(error.message)) throw error;
    });
    if (!response) continue;
    if (response.status() >= 400) {
      problem(path, `status ${response.status()}, linked from ${from}`);
      continue;
    }
    if (isSignIn(page.url())) {
      problem(path, 'sends a person who is signed in to sign in');
      continue;
    }
    visited.push(path);
    await checked(page, path);
    const links = await page.$$eval('a[href]', (all) => all.map((link) => link.href));
    for (const href of links) {
      const url = new URL(href);
      if (!isPage(url, origin)) continue;
      const kind = template(url);
      if (seen.has(kind)) continue;
      seen.add(kind);
      queue.push({ path: url.pathname + url.search, from: path });
    }
  }
  if (queue.length) problem('/console', `more than ${PAGES_MAX} kinds of pages; ${queue[0].path} and others were not seen`);
  return visited;
}

async function withoutScript(browser, state, origin, paths) {
  const context = await browser.newContext({ javaScriptEnabled: false, ignoreHTTPSErrors: true, storageState: state });
  const page = await context.newPage();
  for (const path of paths) {
    const response = await page.goto(origin + path, { waitUntil: 'load' });
    if (response.status() >= 400) problem(path, `status ${response.status()} without script`);
    else if (isSignIn(page.url()) !== isSignIn(origin + path)) problem(path, 'sends a person who is signed in to sign in, without script');
    else if (!(await page.locator('main h1').first().innerText()).trim()) problem(path, 'no heading without script');
    const unusable = await page.locator('main form button[type="button"]:visible').count();
    if (unusable) problem(path, 'shows a button that needs script, without script');
  }
  if (!process.env.BELOW) await renewByForm(page, origin);
  await context.close();
}

// From the list to one certificate to its renewal, by links and forms alone.
async function renewByForm(page, origin) {
  const path = '/console/certificates';
  await page.goto(origin + path);
  await page.locator('table.list tbody a').first().click();
  for (let step = 0; step < 2; step += 1) {
    if (/[?&]done=(renewed|waiting)/.test(page.url())) break;
    const way = page.locator('main').getByRole(step ? 'button' : 'link', { name: /renew/i });
    const other = page.locator('main').getByRole(step ? 'link' : 'button', { name: /renew/i });
    const next = (await way.count()) ? way.first() : other.first();
    if (!(await next.count())) return problem(path, 'no link or button that renews a certificate, without script');
    await next.click();
  }
  const said = await page.locator('[role="status"]').first().innerText();
  if (!/renewal started|waiting for/i.test(said)) problem(path, `a renewal without script says ${JSON.stringify(said)}`);
}

async function pictures(page, origin) {
  if (process.env.BELOW) return;
  const taken = [['overview', '/console'], ['certificates', '/console/certificates'], ['held', '/console/proxy/held'], ['requests', '/console/proxy/requests']];
  await page.goto(`${origin}/console/certificates`, { waitUntil: 'load' });
  const one = await page.locator('table.list tbody a').first().getAttribute('href').catch(() => null);
  if (one) taken.push(['certificate', one]);
  for (const [name, path] of taken) {
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      const response = await page.goto(origin + path, { waitUntil: 'load' });
      if (response.status() >= 400) continue;
      await page.screenshot({ path: join(shots, scheme === 'light' ? `${name}.png` : `${name}-dark.png`) });
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

// A person with a security key: adds it, signs in with it, signs an approval with it, and removes it.
async function securityKey(server, browser) {
  const password = 'correct horse battery staple';
  const { id: person } = server.post('/api/v1/users', { name: 'ann', grants: [{ role: 'admin' }] });
  server.bullaWith(password, 'user', 'password', 'ann');
  server.post('/api/v1/profiles', { name: 'vip', names: { dns_allowed: ['.example.net'] }, requires_approval: true });
  server.bulla('cert', 'create', 'vip.example.net', '--profile', 'vip');
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: WIDE });
  await context.addInitScript(reportsViolations);
  const page = await context.newPage();
  watch(page);
  const session = await context.newCDPSession(page);
  await session.send('WebAuthn.enable');
  const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2', transport: 'usb', hasResidentKey: true, hasUserVerification: true, isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  const touches = (enabled) => session.send('WebAuthn.setAutomaticPresenceSimulation', { authenticatorId, enabled });
  const at = (path) => page.waitForURL(`${server.url}${path}`, { timeout: 20_000 });
  const signInWithPassword = async () => {
    await page.goto(`${server.url}/console/sign-in`);
    await page.getByLabel('Name').fill('ann');
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Sign in with the password' }).click();
  };
  const signOut = () => context.clearCookies();

  await signInWithPassword();
  await at('/console');
  await page.goto(`${server.url}/console/account`);
  await checked(page, '/console/account without a key');
  await page.getByLabel('Name of the new key').fill('blue <b>key</b>');
  await page.getByRole('button', { name: 'Add a security key' }).click();
  await at('/console/account?done=key-added');
  await checked(page, '/console/account');
  await picture(page, 'account');

  await signOut();
  await touches(false);
  await signInWithPassword();
  await page.getByRole('heading', { name: 'Use your security key' }).waitFor();
  await checked(page, '/console/sign-in with a key');
  await picture(page, 'sign-in-key');
  if ((await context.cookies()).length) problem('/console/sign-in', 'the password alone begins a session');
  // The virtual authenticator answers only requests that begin while it is touched.
  await touches(true);
  await signInWithPassword();
  await at('/console');

  await page.goto(`${server.url}/console/confirm`);
  await page.getByRole('button', { name: 'Confirm with a security key' }).click();
  await at('/console/confirm?done=confirmed');

  await signOut();
  await page.goto(`${server.url}/console/sign-in`);
  await picture(page, 'sign-in');
  await page.getByRole('button', { name: 'Sign in with a passkey' }).click();
  await at('/console');

  const rows = (...line) => JSON.parse(server.bulla(...line, '-o', 'json')).rows;
  const [approval] = rows('approval', 'list');
  const path = `/console/approvals/${approval.id}`;
  await page.goto(server.url + path);
  await page.getByRole('button', { name: 'Approve and sign' }).click();
  await at(`${path}?done=approved`);
  await checked(page, path);
  await picture(page, 'approval');
  if (!(await page.locator('main').innerText()).includes('user:ann (key ')) problem(path, 'does not say who signed');
  const [key] = rows('user', 'security-key', 'list', person);
  for (const [pinned, wanted] of [[[], 'valid, key not checked'], [['--key', `user:ann=${key.public_key_sha256}`], 'valid']]) {
    const verified = rows('approval', 'verify', approval.id, '--require-signatures', ...pinned);
    if (verified.length !== 1 || verified[0].signature !== wanted) problem(path, `the signature is ${JSON.stringify(verified)}`);
  }
  const file = join(home, 'approval.json');
  writeFileSync(file, server.bulla('approval', 'show', approval.id, '-o', 'json'));
  server.bulla('approval', 'verify', '--file', file);

  await page.goto(`${server.url}/console/account`);
  await page.getByRole('link', { name: 'Remove' }).click();
  await checked(page, '/console/users/{}/security-keys/{}/remove');
  await page.getByRole('button', { name: 'Remove the key' }).click();
  await at('/console/account?done=removed');
  await signOut();
  await signInWithPassword();
  await at('/console');
  if (rows('user', 'security-key', 'list', person).length) problem('/console/account', 'the key is still there');
  await context.close();
}

async function picture(page, name) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(scheme === 'light' ? WIDE : NARROW);
    await page.screenshot({ path: join(shots, `${name}-${scheme}.png`), fullPage: true });
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}

const home = mkdtempSync(join(tmpdir(), 'bulla-console-'));
let server, browser;
try {
  if (!process.env.CONSOLE) {
    server = await startServer(home);
    seed(server);
    await scanTwice(server);
    await sendThroughProxy(server);
  }
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell', args: ['--no-sandbox'],
  });
  const origin = server?.url ?? process.env.CONSOLE.replace(/\/$/, '');
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: WIDE });
  await context.addInitScript(reportsViolations);
  if (server) await signIn(server, context);
  if (server) await securityKey(server, browser);
  const page = await context.newPage();
  watch(page);
  const visited = await crawl(page, origin);
  console.log(`${visited.length} pages:\n  ${visited.join('\n  ')}`);
  await pictures(page, origin);
  await withoutScript(browser, await context.storageState(), origin, server ? [...visited, '/console/sign-in'] : visited);
} finally {
  await browser?.close();
  await server?.stop();
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
}
console.log(problems.size ? `${problems.size} problems` : 'no problems');
process.exit(problems.size ? 1 : 0);
