// Figures as Prometheus reads them.

/** One line: its name, with the suffix of a histogram's parts, its labels and its value. */
export type Figure = { name: string; labels: Record<string, string>; value: number };

/** The lines of a text in the form of Prometheus. Throws where one is none. */
export function figuresOf(text: string): Figure[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name, labels = '', value] = /^([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)$/i.exec(line) ?? [];
      if (name === undefined || Number.isNaN(Number(value)) !== (value === 'Nan'))
        throw new Error(`this is no figure: ${line}`);
      const pairs = [...labels.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, of]) => [
        label,
        of,
      ]);
      return { name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) };
    });
}

/** The sum of a figure over all whose labels are as given; undefined where there is none. */
export function sumOf(
  figures: readonly Figure[],
  name: string,
  labels: Record<string, string> = {},
): number | undefined {
  const found = figures.filter(
    (figure) =>
      figure.name === name && Object.entries(labels).every(([label, is]) => figure.labels[label] === is),
  );
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
}
