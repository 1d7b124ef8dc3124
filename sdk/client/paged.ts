/**
 * A list whose pages are fetched on demand: `for await (const connection of trellis.connections.list()) ...`. Each iteration
 * starts from the first page.
 */
export class Paged<Item, Page = Item[]> implements AsyncIterable<Item> {
  readonly #fetchPages: () => AsyncGenerator<Page, void, undefined>;
  readonly #itemsOf: (page: Page) => readonly Item[];

  /** @internal */
  constructor(
    fetchPages: () => AsyncGenerator<Page, void, undefined>,
    itemsOf: (page: Page) => readonly Item[],
  ) {
    this.#fetchPages = fetchPages;
    this.#itemsOf = itemsOf;
  }

  /** Yields the items of all pages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.#fetchPages()) yield* this.#itemsOf(page);
  }

  /** Yields the pages as the service returns them. */
  pages(): AsyncGenerator<Page, void, undefined> {
    return this.#fetchPages();
  }

  /** Returns all items, or the first `atMost`. Fetches no further pages then. */
  async toArray({ atMost = Number.POSITIVE_INFINITY }: { atMost?: number } = {}): Promise<Item[]> {
    const all: Item[] = [];
    if (atMost <= 0) return all;
    for await (const page of this.#fetchPages()) {
      all.push(...this.#itemsOf(page).slice(0, atMost - all.length));
      if (all.length >= atMost) break;
    }
    return all;
  }
}
