import { Box } from '@mantine/core';
import { useMemo } from 'react';
import { encode } from 'uqr';

/** A text as a QR code, drawn here: what it holds goes nowhere. Dark on white in both colour schemes, as readers want it. */
export function QrCode({ text, label }: { text: string; label: string }) {
  const { size, path } = useMemo(() => {
    const { data, size: modules } = encode(text, { ecc: 'M', border: 3 });
    const cells = data.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : '')));
    return { size: modules, path: cells.join('') };
  }, [text]);
  return (
    <Box bg="white" bdrs="md" w={196} h={196} flex="none" className="framed">
      <svg
        viewBox={`0 0 ${size} ${size}`}
        width="194"
        height="194"
        role="img"
        aria-label={label}
        shapeRendering="crispEdges"
      >
        <rect width={size} height={size} fill="#fff" />
        <path d={path} fill="#000" />
      </svg>
    </Box>
  );
}
