/**
 * A CSV of made postcodes, counted up from 00501: the codes have to stay text, and the coordinates are numbers.
 */
export function postcodesCsv(count: number): string {
  const rows = Array.from({ length: count }, (_, index) => {
    const code = String(501 + index).padStart(5, '0');
    return `${code},40.9${code},-72.6${code},Town ${code},NY,Suffolk\n`;
  });
  return `zip_code,latitude,longitude,city,state,county\n${rows.join('')}`;
}
