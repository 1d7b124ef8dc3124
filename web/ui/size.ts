const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];

/** "1 byte", "914 bytes", "2.4 MB"; thousands of 1000. */
export function formatSize(bytes: number): string {
  const step = bytes < 1000 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), units.length - 1);
  if (step === 0) return bytes === 1 ? '1 byte' : `${bytes} bytes`;
  const value = bytes / 1000 ** step;
  return `${value.toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 })} ${units[step]}`;
}

/** "1 record", "20,000 records". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

/** The service counts connections and syncs up to this number. */
const maxCounted = 10_000;

/** "10,000+" for a count that stopped. */
export function upTo(count: number): string {
  return `${count.toLocaleString()}${count >= maxCounted ? '+' : ''}`;
}
