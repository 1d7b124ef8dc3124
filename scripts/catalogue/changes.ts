/** A line for each name that is new or gone, and for each field with another value. The day alone is no change. */
export function changes(
  before: ReadonlyMap<string, unknown>,
  after: ReadonlyMap<string, Record<string, unknown>>,
): string[] {
  const names = [...new Set([...before.keys(), ...after.keys()])].sort();
  return names.flatMap((name) => {
    const former = before.get(name) as Record<string, unknown> | undefined;
    const current = after.get(name);
    if (former === undefined) return [`added ${name}`];
    if (current === undefined) return [`removed ${name}`];
    return [...new Set([...Object.keys(former), ...Object.keys(current)])]
      .filter((key) => key !== 'source' && JSON.stringify(former[key]) !== JSON.stringify(current[key]))
      .map(
        (key) =>
          `changed ${name}: ${key} was ${JSON.stringify(former[key])}, is ${JSON.stringify(current[key])}`,
      );
  });
}
