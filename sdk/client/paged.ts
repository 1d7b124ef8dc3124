/**
 * A list that comes in pages, fetched as they are asked for:
 * `for await (const connection of trellis.connections.list()) ...`. Each iteration starts from the first page.
 */
export class Paged<Item, Page = Item[]> implements AsyncIterable<Item> {
  readonly #walk: () => AsyncGenerator<Page, void, undefined>;
  readonly #itemsOf: (page: Page) => readonly Item[];

  /** @internal */
  constructor(walk: () => AsyncGenerator<Page, void, undefined>, itemsOf: (page: Page) => readonly Item[]) {
    this.#walk = walk;
    this.#itemsOf = itemsOf;
  }

  /** One after the other, over all pages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.#walk()) yield* this.#itemsOf(page);
  }

  /** The pages, as the service answers them. */
  pages(): AsyncGenerator<Page, void, undefined> {
    return this.#walk();
  }

  /** All of them, or the first `atMost`: no page beyond these is fetched. */
  async toArray({ atMost = Number.POSITIVE_INFINITY }: { atMost?: number } = {}): Promise<Item[]> {
    const all: Item[] = [];
    if (atMost <= 0) return all;
    for await (const page of this.#walk()) {
      all.push(...this.#itemsOf(page).slice(0, atMost - all.length));
      if (all.length >= atMost) break;
    }
    return all;
  }
}
