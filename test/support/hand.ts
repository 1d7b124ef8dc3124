import assert from 'node:assert/strict';
import type { Locator, Page } from 'playwright-core';
import { assertAccessible, assertFits } from './dashboard.ts';

/** How a person uses a page. */
export type Hand = { by: 'keyboard' | 'mouse'; width: number; colorScheme: 'light' | 'dark' };

/** More than any page has between two controls of a journey. */
const maxTabs = 150;
/** Pages on which a control was used since they were loaded: from then on the focus is never lost. */
const used = new WeakSet<Page>();

/** Gives a page the window and the scheme of this person. */
export async function takeUp(page: Page, { width, colorScheme }: Hand): Promise<void> {
  page.on('load', () => used.delete(page));
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
}

/** Presses a button or follows a link. The keyboard has only Tab and Enter, from wherever the focus is. */
export async function press({ by }: Hand, target: Locator): Promise<void> {
  if (by === 'mouse') return target.click();
  await reach(target);
  const page = target.page();
  used.add(page);
  // The window may close by this.
  await page.keyboard.press('Enter').catch((error) => {
    if (!page.isClosed()) throw error;
  });
}

/** Replaces the text of a field. */
export async function write({ by }: Hand, field: Locator, text: string): Promise<void> {
  if (by === 'mouse') await field.click();
  else await reach(field);
  const { keyboard } = field.page();
  await keyboard.press('ControlOrMeta+a');
  await keyboard.type(text);
}

/** Ticks or unticks a checkbox. */
export async function toggle({ by }: Hand, box: Locator): Promise<void> {
  if (by === 'mouse') return box.click();
  await reach(box);
  await box.page().keyboard.press('Space');
}

/** Fails if axe finds a serious fault, or if the page is wider than its window. */
export async function assertUsable(page: Page): Promise<void> {
  await assertFits(page, page.url());
  await assertAccessible(page);
}

async function reach(target: Locator): Promise<void> {
  await target.waitFor();
  const page = target.page();
  if (used.has(page)) {
    const hasFocus = await page.evaluate<boolean>('document.activeElement !== document.body');
    assert.ok(hasFocus, `${page.url()}: the focus was lost before ${target}`);
  }
  for (let tabs = 0; tabs < maxTabs; tabs += 1) {
    if ((await target.and(page.locator(':focus')).count()) > 0) return;
    await page.keyboard.press('Tab');
  }
  assert.fail(`${page.url()}: ${maxTabs} presses of Tab do not reach ${target}`);
}
