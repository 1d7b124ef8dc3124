/** What stands at a path such as `data.items[0].id`; undefined where nothing does. An empty path is the value itself. */
export function at(value: unknown, path: string): unknown {
  let found = value;
  for (const name of path.replace(/\[(\w+)\]/g, '.$1').split('.')) {
    if (name === '') continue;
    if (found === null || typeof found !== 'object' || !Object.hasOwn(found, name)) return undefined;
    found = (found as Record<string, unknown>)[name];
  }
  return found;
}
