import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { BrowserContext, Page, Route } from 'playwright-core';
import type { Role } from '../../server/http/auth/caller.ts';
import type { Catalog } from '../../server/providers/catalog.ts';
import { createSetUp } from '../../server/users/invitations.ts';
import { openBrowser, prepare, type TestBrowser, waitUntilTrue } from './browser.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from './person.ts';
import { openTrellis, type TestTrellis } from './trellis.ts';
import { haveWebPages } from './web-pages.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Pictures of pages, kept as the output of a test run. */
const pictures = join(import.meta.dirname, '../../test-output/pages');
type View = { width: number; colorScheme: 'light' | 'dark' };
const isEveryView = process.env.PICTURES === 'all';
const wide: View = { width: 1280, colorScheme: 'light' };
const narrow: View = { width: 390, colorScheme: 'dark' };
const everyView: View[] = (['light', 'dark'] as const).flatMap((colorScheme) =>
  [1920, 1280, 390].map((width) => ({ width, colorScheme })),
);
/** How many pages were looked at so far. */
let turn = 0;

/** A service with its dashboard, and a real browser to open it in. */
export type TestDashboard = {
  trellis: TestTrellis;
  browser: TestBrowser;
  /** A browser window of its own in which this role is signed in; the first call for a role makes that user. */
  openAs(role: Role): Promise<{ page: Page; context: BrowserContext; person: TestPerson }>;
  /** A window in which nobody is signed in. */
  openAsNobody(): Promise<{ page: Page; context: BrowserContext }>;
  /** Words of the console that are part of what a test does, such as a refused call. */
  expectComplaint(words: RegExp): void;
  /** Fails where a page complained on its console, then where a secret got out. */
  close(): Promise<void>;
};

/** Builds the dashboard where something in it is newer, as the service does, and opens it; `env` adds settings. */
export async function openDashboard(
  env: Record<string, string> = {},
  settings: { catalog?: Catalog } = {},
): Promise<TestDashboard> {
  await haveWebPages();
  const trellis = await openTrellis({ ...fromAnywhere, ...env }, settings);
  const browser = await openBrowser();
  const complaints: string[] = [];
  const expected: RegExp[] = [];
  const people = new Map<Role, TestPerson>();

  async function personOf(role: Role): Promise<TestPerson> {
    const known = people.get(role);
    if (known !== undefined) return known;
    const person = openPerson(trellis);
    const token =
      role === 'owner'
        ? (await createSetUp(trellis.db, new Date())).token
        : await invitationFor(await personOf('owner'), role);
    const user = { name: `The ${role}`, email: `${role}@example.com`, password };
    const made = await person.call('POST', '/users', { body: { token, ...user } });
    assert.equal(made.status, 201, made.text);
    const signedIn = await person.signIn(user.email, password);
    assert.equal(signedIn.status, 200, signedIn.text);
    people.set(role, person);
    return person;
  }

  async function open() {
    const context = await browser.newContext({
      reducedMotion: 'reduce',
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    await prepare(context);
    context.on('page', (page) => {
      page.on('pageerror', ({ message }) => complaints.push(`${page.url()}: ${message}`));
      page.on('console', (line) => {
        if (line.type() === 'error' || line.type() === 'warning')
          complaints.push(`${page.url()}: ${line.text()}`);
      });
    });
    return { context, page: await context.newPage() };
  }

  return {
    trellis,
    browser,
    async openAs(role) {
      const person = await personOf(role);
      const { context, page } = await open();
      const cookies = person.cookie().split('; ').filter(Boolean);
      await context.addCookies(
        cookies.map((pair) => {
          const [name = '', ...value] = pair.split('=');
          return { name, value: value.join('='), url: trellis.baseUrl };
        }),
      );
      return { page, context, person };
    },
    openAsNobody: open,
    expectComplaint(words) {
      expected.push(words);
    },
    async close() {
      await browser.close();
      await trellis.close();
      const unexpected = complaints.filter((text) => !expected.some((words) => words.test(text)));
      assert.deepEqual(unexpected, []);
    },
  };
}

/** Fails where axe finds what shuts people out, seriously or critically; `rule`: only this one. */
export async function assertAccessible(page: Page, rule?: string): Promise<void> {
  assert.deepEqual(await seriousFaults(page, rule), [], page.url());
}

async function seriousFaults(page: Page, rule?: string): Promise<unknown> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(axe);
  // No rule that it goes by asks for style sheets or sounds beforehand.
  const only = rule === undefined ? '' : `runOnly: ['${rule}'],`;
  return page.evaluate(`axe.run({ ${only} resultTypes: ['violations'], preload: false }).then(({ violations }) => violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => id + ': ' + nodes.map(({ target }) => target.join(' ')).join(', ')))`);
}

/**
 * Takes a picture of a page, by turns wide and light or narrow and dark, and with `PICTURES=all` at each width in each
 * scheme. Fails where the page in it shuts people out or is wider than the window, which is tried narrow in any case. The
 * window is as it was afterwards.
 */
export async function picture(page: Page, name: string): Promise<void> {
  await mkdir(pictures, { recursive: true });
  const before = page.viewportSize();
  turn += 1;
  const views = isEveryView ? everyView : turn % 2 === 0 ? [narrow] : [wide];
  for (const view of views) {
    await show(page, view);
    await page.screenshot({ path: join(pictures, `${name}-${view.width}-${view.colorScheme}.png`) });
    await assertFits(page, name);
    assert.deepEqual(await seriousFaults(page), [], `${name} at ${view.width}, ${view.colorScheme}`);
  }
  if (views.every(({ width }) => width !== narrow.width)) {
    await show(page, { ...wide, width: narrow.width });
    await assertFits(page, name);
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  if (before !== null) await page.setViewportSize(before);
}

async function show(page: Page, { width, colorScheme }: View): Promise<void> {
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.setViewportSize({ width, height: width === narrow.width ? 844 : 900 });
  // The navigation slides in or out at the new width.
  await page.evaluate(
    'Promise.allSettled(document.getAnimations().filter(({ effect }) =>' +
      ' effect.getComputedTiming().iterations !== Infinity).map(({ finished }) => finished))',
  );
}

/** Fails where a page is wider than its window, also once all that it loads is laid out. */
export async function assertFits(page: Page, name: string): Promise<void> {
  const fits = '(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.documentElement)';
  await waitUntilTrue(page, fits, 5_000).catch(() => {});
  const [overflow, width] = await page.evaluate<[number, number]>(
    '(({ scrollWidth, clientWidth }) => [scrollWidth - clientWidth, clientWidth])(document.documentElement)',
  );
  assert.ok(overflow <= 0, `${name} at ${width}: ${overflow} pixels too wide`);
}

/** What the Export menu of the page downloads. */
export async function exported(
  page: Page,
  format: 'CSV' | 'NDJSON',
): Promise<{ name: string; text: string }> {
  await page.getByRole('button', { name: 'Export' }).click();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('menuitem', { name: format }).click(),
  ]);
  const name = download.suggestedFilename();
  await page.getByText(`${name} was downloaded.`).last().waitFor();
  return { name, text: await readFile(await download.path(), 'utf8') };
}

/** Holds calls that match back until what this answers is called, so that a page stays in its loading state. */
export async function holdCalls(page: Page, pattern: string): Promise<() => Promise<void>> {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const held: Promise<void>[] = [];
  const hold = (route: Route) => {
    const passed = released.then(() => route.continue());
    held.push(passed);
    return passed;
  };
  await page.route(pattern, hold);
  return async () => {
    release();
    await Promise.all(held);
    await page.unroute(pattern, hold);
  };
}

async function invitationFor(owner: TestPerson, role: Role): Promise<string> {
  const { status, body, text } = await owner.call('POST', '/users/invitations', {
    body: { role, environments: ['dev'] },
  });
  assert.equal(status, 201, text);
  return tokenIn((body.data as { link: string }).link);
}
