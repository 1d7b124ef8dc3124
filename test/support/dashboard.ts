import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page, Route } from 'playwright-core';
import type { Role } from '../../server/http/roles.ts';
import { createLog } from '../../server/log.ts';
import type { Catalog } from '../../server/providers/catalog.ts';
import { createSetUp } from '../../server/users/invitations.ts';
import { createWebBuild } from '../../server/web-build.ts';
import { openBrowser, prepare } from './browser.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from './person.ts';
import { openTrellis, type TestTrellis } from './trellis.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Pictures of pages, kept as the output of a test run. */
const pictures = join(import.meta.dirname, '../../test-output/pages');
type View = { width: number; colorScheme: 'light' | 'dark' };
const isEveryView = process.env.PICTURES === 'all';
/** What each page is looked at in: each width and each scheme once, or with `PICTURES=all` each width in each scheme. */
const views: View[] = isEveryView
  ? (['light', 'dark'] as const).flatMap((colorScheme) =>
      [1920, 1280, 390].map((width) => ({ width, colorScheme })),
    )
  : [
      { width: 1280, colorScheme: 'light' },
      { width: 390, colorScheme: 'dark' },
    ];
/** Which of the views axe looks through in full, where it is not all of them. */
let turn = 0;

/** A service with its dashboard, and a real browser to open it in. */
export type TestDashboard = {
  trellis: TestTrellis;
  browser: Browser;
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
  const build = createWebBuild({ log: createLog({ level: 'warn', format: 'json' }) });
  build.start();
  await build.settled();
  assert.deepEqual(build.building(), { is: 'none' });
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

/** Fails where axe finds what shuts people out, seriously or critically. */
export async function assertAccessible(page: Page): Promise<void> {
  assert.deepEqual(await seriousFaults(page), [], page.url());
}

/** What axe finds, by one rule where it is given. */
async function seriousFaults(page: Page, rule?: string): Promise<unknown> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(axe);
  const options = { resultTypes: ['violations'], ...(rule !== undefined && { runOnly: [rule] }) };
  return page.evaluate(`axe.run(${JSON.stringify(options)}).then(({ violations }) => violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => id + ': ' + nodes.map(({ target }) => target.join(' ')).join(', ')))`);
}

/**
 * Takes pictures of a page, wide and light, narrow and dark, and fails where it is wider than the window in one of them
 * or shuts people out: by its colors in either, by anything else in this one and that one by turns. The window is as it was
 * afterwards.
 */
export async function picture(page: Page, name: string): Promise<void> {
  await mkdir(pictures, { recursive: true });
  const before = page.viewportSize();
  turn += 1;
  for (const [index, { width, colorScheme }] of views.entries()) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
    // The navigation slides in or out at the new width.
    await page.evaluate(
      'Promise.allSettled(document.getAnimations().filter(({ effect }) =>' +
        ' effect.getComputedTiming().iterations !== Infinity).map(({ finished }) => finished))',
    );
    await page.screenshot({ path: join(pictures, `${name}-${width}-${colorScheme}.png`) });
    const overflow = await page.evaluate(
      'document.documentElement.scrollWidth - document.documentElement.clientWidth',
    );
    assert.ok(Number(overflow) <= 0, `${name} at ${width}: ${overflow} pixels too wide`);
    // One of both in full, in turn; the other in its colors.
    const isWhole = isEveryView || index === turn % views.length;
    const faults = await seriousFaults(page, isWhole ? undefined : 'color-contrast');
    assert.deepEqual(faults, [], `${name} at ${width}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  if (before !== null) await page.setViewportSize(before);
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
