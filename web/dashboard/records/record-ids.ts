/** The maximum number of IDs in a call. */
const maxIds = 100;

/** Splits entered IDs at commas and line breaks. */
export function idsOf(text: string): string[] {
  const ids = text
    .split(/[,\n]/)
    .map((id) => id.trim())
    .filter((id) => id !== '');
  return [...new Set(ids)].slice(0, maxIds);
}
