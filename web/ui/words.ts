/** A code in plain words: `testing_expired` → "Testing expired". */
export function sentence(code: string): string {
  const words = code.replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}
