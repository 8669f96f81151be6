// What the tests of the console check on each page, and the problems that they found.
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 375, height: 812 };
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// The folder of the screenshots.
export const shots = process.argv[2];
if (!shots) {
  console.error(`usage: node ${process.argv[1]} SCREENSHOTS`);
  process.exit(2);
}
mkdirSync(shots, { recursive: true });

export const problems = new Set();
export const problem = (path, text) => {
  const line = `${path}: ${text}`;
  if (!problems.has(line)) console.log(`PROBLEM ${line}`);
  problems.add(line);
};

// Reports what the browser's console and scripts say.
export function watch(page) {
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problem(new URL(page.url()).pathname, `console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problem(new URL(page.url()).pathname, `script: ${error.message}`));
}

export const reportsViolations = () => document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`Content-Security-Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});

// The second run, in dark mode on a narrow screen: the rules of axe whose result depends on colors, on the layout, or on what is
// displayed. The same document has passed all rules before, in light mode on a wide screen. Dark mode and a narrow screen change its
// style only, so the other rules cannot find more.
const STYLE_RULES = [
  'color-contrast', 'link-in-text-block', 'target-size', 'scrollable-region-focusable', 'aria-hidden-focus', 'button-name',
  'input-button-name', 'label', 'link-name', 'select-name', 'summary-name', 'td-headers-attr', 'th-has-data-cells',
];
// The frames around the content of the pages (header and menu) that the second run has checked. A page whose frame is equal to one of
// them has only its content checked: the style of the frame does not depend on the content.
const frames = new Set();
const frameOf = () => {
  const body = document.body.cloneNode(true);
  body.querySelector('main')?.remove();
  return body.outerHTML;
};

// For a context of the browser: each document has axe from the start. Sending it to each page would take longer.
export const loadsAxe = { content: AXE };

async function axe(page, path, how, options, part) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  const found = await page.evaluate(([part, options]) => globalThis.axe.run(part ?? document, options), [
    part, { resultTypes: ['violations'], selectors: false, ...options },
  ]);
  for (const { id, help, nodes } of found.violations) {
    problem(path, `${how}: axe ${id}: ${help}: ${nodes.slice(0, 2).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  }
}

// The second run does not load the style sheets again for rules about them, which have run before.
async function axeOfStyle(page, path, how) {
  const frame = await page.evaluate(frameOf);
  await axe(page, path, how, { runOnly: { type: 'rule', values: STYLE_RULES }, preload: false }, frames.has(frame) ? 'main' : undefined);
  frames.add(frame);
}

export async function checked(page, path) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(scheme === 'light' ? WIDE : NARROW);
    if (scheme === 'light') await axe(page, path, scheme, { runOnly: RULES });
    else await axeOfStyle(page, path, scheme);
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wider > 0) problem(path, `${wider} px too wide for ${page.viewportSize().width} px`);
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}

export async function picture(page, name) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(scheme === 'light' ? WIDE : NARROW);
    await page.screenshot({ path: join(shots, `${name}-${scheme}.png`), fullPage: true });
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}
