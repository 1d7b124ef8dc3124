import { Box, Group, Stack, Text, Title } from '@mantine/core';
import { type ReactNode, useEffect } from 'react';

/** The frame of a page: title, description, actions and content. */
export function Page({
  title,
  about,
  before,
  actions,
  children,
}: {
  title: string;
  about?: ReactNode;
  /** Above the title: the link to the previous page. */
  before?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · Trellis`;
  }, [title]);
  return (
    <Stack gap="lg" maw={1280} mx="auto">
      <Box>
        {before}
        <Group justify="space-between" align="flex-start" gap="sm">
          <Stack gap={4} miw={0} flex="1 1 260px">
            <Title order={1} className="wrap page-title" title={title}>
              {title}
            </Title>
            {about !== undefined && (
              <Text component="div" c="dimmed" maw={680}>
                {about}
              </Text>
            )}
          </Stack>
          {actions && <Group gap="xs">{actions}</Group>}
        </Group>
      </Box>
      {children}
    </Stack>
  );
}
