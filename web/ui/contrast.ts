/** The text color with the better contrast on a color such as `#2454d6` (WCAG 2.2, relative luminance). */
export function wordsOn(color: string): '#0b1020' | '#ffffff' {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? '#0b1020' : '#ffffff';
}
