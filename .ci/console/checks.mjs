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

async function axe(page, path, how) {
  await page.evaluate(AXE);
  const found = await page.evaluate((rules) => globalThis.axe.run(document, { runOnly: rules }), RULES);
  for (const { id, help, nodes } of found.violations) {
    problem(path, `${how}: axe ${id}: ${help}: ${nodes.slice(0, 2).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  }
}

export async function checked(page, path) {
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

export async function picture(page, name) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(scheme === 'light' ? WIDE : NARROW);
    await page.screenshot({ path: join(shots, `${name}-${scheme}.png`), fullPage: true });
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}
