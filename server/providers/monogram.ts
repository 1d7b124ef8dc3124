/**
 * A sign for a provider that brings no drawing of its own: the first letters of its name on a coloured ground. The same
 * name gives the same sign. It imitates nobody's trade mark.
 */
export function monogram({ name, title }: { name: string; title: string }): string {
  const words = title.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== '');
  const letters = words
    .slice(0, 2)
    .map((word) => word.slice(0, 1).toUpperCase())
    .join('');
  let sum = 0;
  for (const sign of name) sum = (sum * 31 + (sign.codePointAt(0) ?? 0)) % 360;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><title>${escaped(title)}</title>` +
    // Dark enough for white letters in every hue: a contrast of 4.5 or more.
    `<rect width="32" height="32" rx="7" fill="hsl(${sum} 50% 30%)"/>` +
    '<text x="16" y="21" font-family="sans-serif" font-size="14" font-weight="600" text-anchor="middle" fill="#fff">' +
    `${escaped(letters)}</text></svg>\n`
  );
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
