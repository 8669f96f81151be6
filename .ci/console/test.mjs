// The web console in a real browser: every page that links reach, in light and dark, on a wide and a narrow screen, with and
// without script.
//
//   BULLA=target/debug/bulla node test.mjs SCREENSHOTS
//
// starts `bulla up` in a temporary folder, goes through the life of a certificate by clicking (journey.mjs), adds data (seed.mjs), and
// signs in with a one-time link, a password, a security key and a passkey. For work on pages, in place of that:
//
//   CONSOLE=http://127.0.0.1:8000 [BELOW=/console/acme,/console/issuers] node test.mjs SCREENSHOTS
//
// looks at a console that runs and asks nobody to sign in (`cargo run -p web_console --example beside`), at all pages or at
// those below BELOW. CHROMIUM names the browser, /usr/bin/chromium-headless-shell unless given.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

import { checked, loadsAxe, picture, problem, problems, reportsViolations, shots, watch, WIDE } from './checks.mjs';
import { everyForm } from './forms.mjs';
import { journey, prepare } from './journey.mjs';
import { scanTwice, seed, sendThroughProxy } from './seed.mjs';
import { startServer } from './server.mjs';

// So many pages end the crawl, and so many children of one path that look like words rather than identities.
const PAGES_MAX = 300;
const WORDS_MAX = 8;

async function signIn(server, context) {
  const { code } = await server.post('/api/v1/auth/links', {});
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
  if (!process.env.BELOW) {
    await renewByForm(page, origin);
    await policyByForm(page, origin);
    await everyForm(page, origin);
  }
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

// A policy created by its form, and changed by it.
async function policyByForm(page, origin) {
  const path = '/console/policies/new';
  const field = (label) => page.getByLabel(label, { exact: true });
  const lifetime = () => field('Maximum lifetime in days');
  await page.goto(origin + path);
  await field('Name').fill('by-form');
  await lifetime().fill('many');
  await field('p256').check();
  await page.getByRole('button', { name: 'Create' }).click();
  const said = await page.getByRole('alert').innerText();
  if (!said.includes('Maximum lifetime in days: "many"')) problem(path, `a wrong number says ${JSON.stringify(said)}`);
  if (!(await field('p256').isChecked())) problem(path, 'a rejected form loses what was entered');
  await lifetime().fill('90');
  await page.getByRole('button', { name: 'Create' }).click();
  if (!/done=created/.test(page.url())) return problem(path, `the policy is not created: ${page.url()}`);
  await page.goto(`${origin}/console/policies/by-form/edit`);
  if ((await lifetime().inputValue()) !== '90') problem(path, 'the form to edit does not show the lifetime');
  await lifetime().fill('47');
  await field('p256').uncheck();
  await page.getByRole('button', { name: 'Save' }).click();
  const rules = await page.locator('main').innerText();
  if (!rules.includes('47 days') || rules.includes('key types')) problem(path, `the changed policy shows ${JSON.stringify(rules)}`);
}

async function pictures(page, origin) {
  if (process.env.BELOW) return;
  const taken = [['overview', '/console'], ['certificates', '/console/certificates'], ['held', '/console/proxy/held'], ['requests', '/console/proxy/requests'],
    ['issuer-types', '/console/issuers/new'], ['issuer-form', '/console/issuers/new?form=acme'], ['profile-form', '/console/profiles/new']];
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
  const { id: person } = await server.post('/api/v1/users', { name: 'ann', grants: [{ role: 'admin' }] });
  await server.bullaWith(password, 'user', 'password', 'ann');
  await server.post('/api/v1/profiles', { name: 'vip', names: { dns_allowed: ['.example.net'] }, requires_approval: true });
  await server.bulla('cert', 'create', 'vip.example.net', '--profile', 'vip');
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: WIDE, reducedMotion: 'reduce' });
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

  const rows = async (...line) => JSON.parse(await server.bulla(...line, '-o', 'json')).rows;
  const [approval] = await rows('approval', 'list');
  const path = `/console/approvals/${approval.id}`;
  await page.goto(server.url + path);
  await page.getByRole('button', { name: 'Approve and sign' }).click();
  await at(`${path}?done=approved`);
  await checked(page, path);
  await picture(page, 'approval');
  if (!(await page.locator('main').innerText()).includes('user:ann (key ')) problem(path, 'does not say who signed');
  const [key] = await rows('user', 'security-key', 'list', person);
  for (const [pinned, wanted] of [[[], 'valid, key not checked'], [['--key', `user:ann=${key.public_key_sha256}`], 'valid']]) {
    const verified = await rows('approval', 'verify', approval.id, '--require-signatures', ...pinned);
    if (verified.length !== 1 || verified[0].signature !== wanted) problem(path, `the signature is ${JSON.stringify(verified)}`);
  }
  const file = join(home, 'approval.json');
  writeFileSync(file, await server.bulla('approval', 'show', approval.id, '-o', 'json'));
  await server.bulla('approval', 'verify', '--file', file);

  await page.goto(`${server.url}/console/account`);
  await page.getByRole('link', { name: 'Remove' }).click();
  await checked(page, '/console/users/{}/security-keys/{}/remove');
  await page.getByRole('button', { name: 'Remove the key' }).click();
  await at('/console/account?done=removed');
  await signOut();
  await signInWithPassword();
  await at('/console');
  if ((await rows('user', 'security-key', 'list', person)).length) problem('/console/account', 'the key is still there');
  await context.close();
}

const home = mkdtempSync(join(tmpdir(), 'bulla-console-'));
let world, server, browser;
try {
  if (!process.env.CONSOLE) {
    world = await prepare(home);
    server = await startServer(home, world);
  }
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell', args: ['--no-sandbox'],
  });
  const origin = server?.url ?? process.env.CONSOLE.replace(/\/$/, '');
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: WIDE, reducedMotion: 'reduce' });
  await context.addInitScript(reportsViolations);
  await context.addInitScript(loadsAxe);
  const page = await context.newPage();
  watch(page);
  if (server) {
    await journey(server, world, page);
    await seed(server);
    await scanTwice(server);
    await sendThroughProxy(server);
    await signIn(server, context);
    await securityKey(server, browser);
  }
  const visited = await crawl(page, origin);
  console.log(`${visited.length} pages:\n  ${visited.join('\n  ')}`);
  await pictures(page, origin);
  await withoutScript(browser, await context.storageState(), origin, server ? [...visited, '/console/sign-in'] : visited);
} finally {
  await browser?.close();
  await server?.stop();
  world?.stop();
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
}
console.log(problems.size ? `${problems.size} problems` : 'no problems');
process.exit(problems.size ? 1 : 0);
