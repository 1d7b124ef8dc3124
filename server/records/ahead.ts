/**
 * The same values in the same order; while one is being used the next one is made, and no more than that. An error
 * surfaces at its turn. Who leaves early leaves when the value that is being made is done, and nothing runs on.
 */
export async function* readAhead<T>(
  values: AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  let next = values.next();
  try {
    for (;;) {
      const made = await next;
      if (made.done) return;
      next = values.next();
      // Awaited at its turn, or never: it must not count as unhandled until then.
      next.catch(() => {});
      yield made.value;
    }
  } finally {
    await values.return();
  }
}
