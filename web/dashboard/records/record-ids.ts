/** The most that one call may name. */
const maxIds = 100;

/** Ids that somebody typed or pasted, with commas or line breaks between. */
export function idsOf(text: string): string[] {
  const ids = text
    .split(/[,\n]/)
    .map((id) => id.trim())
    .filter((id) => id !== '');
  return [...new Set(ids)].slice(0, maxIds);
}
