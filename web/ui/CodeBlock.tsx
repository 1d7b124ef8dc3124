import { Box, Button, Stack } from '@mantine/core';
import { useMemo, useState } from 'react';
import { CopyButton } from './CopyButton.tsx';
import { counted } from './size.ts';

/** The number of lines shown first: more than a screen, and few enough to render quickly. */
const step = 2_000;

/** Source text with line numbers, which are not copied. */
export function CodeBlock({ code, what }: { code: string; what: string }) {
  const lines = useMemo(() => code.replace(/\n$/, '').split('\n'), [code]);
  const [shown, setShown] = useState(step);
  const digits = String(Math.min(lines.length, shown)).length;
  return (
    <Stack gap="xs">
      <Box pos="relative">
        <Box
          component="pre"
          className="source"
          role="group"
          tabIndex={0}
          aria-label={what}
          __vars={{ '--digits': String(digits) }}
        >
          {lines.slice(0, shown).map((line, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: lines stand in their order and never move
            <span key={at} className="source-line" data-number={at + 1}>
              {line}
              {'\n'}
            </span>
          ))}
        </Box>
        <Box pos="absolute" top={6} right={10} className="source-copy">
          <CopyButton value={code} what={what} />
        </Box>
      </Box>
      {lines.length > shown && (
        <Button variant="default" size="compact-sm" onClick={() => setShown(shown * 4)} w="fit-content">
          Show more ({counted(lines.length - shown, 'line')} left)
        </Button>
      )}
    </Stack>
  );
}
