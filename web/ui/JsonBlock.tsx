import { Box, Button, Code, Stack } from '@mantine/core';
import { useMemo, useState } from 'react';
import { CopyButton } from './CopyButton.tsx';
import { formatSize } from './size.ts';

/** The number of characters shown first: more than a screen, and few enough to render quickly. */
const step = 20_000;

/** A value as indented JSON, with a copy button; a long text is shown in parts. */
export function JsonBlock({ value, what }: { value: unknown; what: string }) {
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? 'undefined', [value]);
  const [shown, setShown] = useState(step);
  return (
    <Stack gap="xs">
      <Box pos="relative">
        <Code block tabIndex={0} mah={480} pr={44} aria-label={what}>
          {text.length > shown ? `${text.slice(0, shown)}…` : text}
        </Code>
        <Box pos="absolute" top={6} right={8}>
          <CopyButton value={text} what={what} />
        </Box>
      </Box>
      {text.length > shown && (
        <Button variant="default" size="compact-sm" onClick={() => setShown(shown * 4)} w="fit-content">
          Show more ({formatSize(text.length - shown)} left)
        </Button>
      )}
    </Stack>
  );
}
