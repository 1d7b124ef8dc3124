import { Box, Card, Center, Stack, Text, Title } from '@mantine/core';
import { type ReactNode, useEffect } from 'react';

/** The frame of the pages without a session. */
export function SignedOutLayout({
  title,
  about,
  children,
}: {
  title: string;
  about: ReactNode;
  children: ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · Trellis`;
  }, [title]);
  return (
    <Center mih="100dvh" p="md" component="main">
      <Box w="100%" maw={400}>
        <Stack align="center" gap={6} mb="lg" ta="center">
          <svg width="44" height="44" viewBox="0 0 32 32" aria-hidden="true">
            <rect width="32" height="32" rx="8" fill="var(--mantine-primary-color-filled)" />
            <path
              d="M10 7v18M22 7v18M7 12h18M7 20h18"
              stroke="#fff"
              strokeWidth="2.6"
              strokeLinecap="round"
              fill="none"
            />
          </svg>
          <Title order={1}>{title}</Title>
          <Text c="dimmed">{about}</Text>
        </Stack>
        <Card padding="lg">{children}</Card>
      </Box>
    </Center>
  );
}
