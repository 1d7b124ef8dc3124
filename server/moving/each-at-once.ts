/**
 * Does `work` for all items, for so many at once. The first that fails ends it, once those that run are done: then it
 * throws what that one threw.
 */
export async function eachAtOnce<T>(
  items: readonly T[],
  max: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  const failures: unknown[] = [];
  const worker = async () => {
    while (next < items.length && failures.length === 0) {
      const item = items[next] as T;
      next += 1;
      await work(item).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: Math.min(max, items.length) }, worker));
  if (failures.length > 0) throw failures[0];
}
