// Forms of objects that are JSON documents: creates an object of each type, and saves it again unchanged.
import { problem } from './checks.mjs';

const KINDS = ['profiles', 'issuers', 'policies', 'alert-rules', 'alert-channels'];

// Values of fields by their labels. The names are in no profile that requires approval. Fields without a value here stay as the form shows them.
const VALUES = {
  'DNS names allowed': '.forms.example.org',
  'Directory URL': 'https://ca.example.net/directory',
  URL: 'https://service.example.net/x',
  'URL for orders': 'https://service.example.net/orders',
  'URL of the incoming webhook': 'https://hooks.example.net/x',
  'URL of the workflow': 'https://hooks.example.net/y',
  Secret: '0123456789abcdef',
  Role: 'web',
  Token: 'a-token',
  'Routing key': 'a-key',
  'API key': 'a-key',
  Host: 'mail.example.net',
  Sender: 'bulla@example.net',
  Recipients: 'pki@example.net',
  Channels: 'channel-webhook',
  'Fingerprint of the root': 'ab'.repeat(32),
  Provisioner: 'admin',
  'Program that issues': 'issue',
};

// The API rejects these, because the test has no key of a provisioner and no program in its configuration file.
const REJECTED = { step_ca: /key/i, exec: /programs/i };

async function fill(page) {
  for (const [label, value] of Object.entries(VALUES)) {
    const field = page.locator('main form').getByLabel(label, { exact: true });
    if ((await field.count()) === 1) await field.fill(value);
  }
}

async function createAndSave(page, origin, kind, form) {
  const path = `/console/${kind}/new${form ? `?form=${form}` : ''}`;
  const name = `${kind.replace('alert-', '').replace(/s$/, '')}${form ? `-${form}` : '-form'}`;
  await page.goto(origin + path);
  await page.getByLabel('Name', { exact: true }).fill(name);
  await fill(page);
  await page.getByRole('button', { name: 'Create' }).click();
  if (REJECTED[form]) {
    const said = await page.getByRole('alert').innerText();
    if (!REJECTED[form].test(said)) problem(path, `the rejection says ${JSON.stringify(said)}`);
    return;
  }
  if (!/[?&]done=created/.test(page.url())) {
    return problem(path, `nothing is created: ${await page.locator('main').innerText()}`);
  }
  await page.goto(`${origin}/console/${kind}`);
  await page.locator('main').getByRole('link', { name, exact: true }).first().click();
  await page.locator('main').getByRole('link', { name: 'Edit', exact: true }).click();
  // Secrets are not shown.
  await fill(page);
  await page.getByRole('button', { name: 'Save' }).click();
  if (!/[?&]done=saved/.test(page.url())) {
    problem(path, `an unchanged form is rejected: ${await page.getByRole('alert').innerText().catch(() => page.url())}`);
  }
}

export async function everyForm(page, origin) {
  for (const kind of KINDS.toReversed()) {
    await page.goto(`${origin}/console/${kind}/new`);
    const links = await page.locator('.choices a').evaluateAll((all) => all.map((link) => new URL(link.href).searchParams.get('form')));
    for (const form of links.length ? links.filter((name) => name !== 'json') : ['']) await createAndSave(page, origin, kind, form);
  }
}
